# For ~/.config/fish/config.fish: tsformer completion fish | source
function __tsformer_settings
    set -l words (commandline -opc) (commandline -ct)
    set -lx COMP_LINE (string join ' ' $words[2..])
    $words[1] $words[2] -sc query=bash 2>/dev/null | string split ' '
end
complete -c tsformer -n __fish_use_subcommand -f -a 'COMMANDS'
complete -c tsformer -n 'not __fish_use_subcommand' -a '(__tsformer_settings)'
