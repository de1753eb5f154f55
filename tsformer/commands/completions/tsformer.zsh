# For ~/.zshrc, below compinit: eval "$(tsformer completion zsh)"
_tsformer() {
    local -a found
    if ((CURRENT == 2)); then
        compadd -- COMMANDS
        return
    fi
    found=(${(z)"$(COMP_LINE="${(j: :)words[2,CURRENT]}" $words[1] $words[2] -sc query=bash 2>/dev/null)"})
    compadd -S '' -- ${(M)found:#*[=./]}
    compadd -- ${found:#*[=./]}
    [[ -n $found ]] || { compset -P '*='; _files }
}
compdef _tsformer tsformer
