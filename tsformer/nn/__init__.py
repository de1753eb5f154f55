"""Networks: plain torch modules that know nothing of tables, configs or Lightning."""

from tsformer.nn.network import ForecastNetwork
from tsformer.nn.transformer import TFModel, load_reference_state_dict

__all__ = ["ForecastNetwork", "TFModel", "load_reference_state_dict"]
