"""What is shown of a fit or a backtest: tables, pictures and a page."""
