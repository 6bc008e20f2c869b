# Completion of PROGRAM for bash: source <(PROGRAM completion bash)
FUNCTION() {
    local line directive=0 begun="${COMP_WORDS[COMP_CWORD]}"
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    # bash takes --option=value for three words.
    if [[ $begun == "=" ]]; then
        begun=""
        words=("${COMP_WORDS[@]:1:COMP_CWORD-1}" "")
    elif [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
        words=("${COMP_WORDS[@]:1:COMP_CWORD-2}" "$begun")
    fi
    while IFS= read -r line; do
        case $line in
            :[0-9]*) directive=${line#:} ;;
            "$begun"*) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <(PROGRAM __complete "${words[@]}" 2>/dev/null)
    if [[ $directive == 0 && ${#COMPREPLY[@]} == 0 ]]; then
        compopt -o default 2>/dev/null
    fi
}
complete -F FUNCTION PROGRAM
