# For ~/.bashrc: eval "$(tsformer completion bash)"
_tsformer() {
    local line="${COMP_LINE:0:COMP_POINT}" choices
    local word="${line##* }"
    if ((COMP_CWORD == 1)); then
        choices="COMMANDS"
    else
        choices="$(COMP_LINE="${line#* }" "${COMP_WORDS[0]}" "${COMP_WORDS[1]}" -sc query=bash 2>/dev/null)"
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    case "${COMPREPLY[*]: -1}" in *[=./]) compopt -o nospace 2>/dev/null ;; esac
    # What stands before "=" is a word of its own for bash.
    case "$COMP_WORDBREAKS" in
        *=*) COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}") ;;
    esac
}
complete -o default -F _tsformer tsformer
