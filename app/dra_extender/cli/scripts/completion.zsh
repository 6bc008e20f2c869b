#compdef PROGRAM
# Completion of PROGRAM for zsh: source <(PROGRAM completion zsh)
FUNCTION() {
    local line directive=0
    local -a candidates
    while IFS= read -r line; do
        case $line in
            :[0-9]*) directive=${line#:} ;;
            *) candidates+=("${${line%%$'\t'*}//:/\\:}${${(M)line%%$'\t'*}:+:${line#*$'\t'}}") ;;
        esac
    done < <(PROGRAM __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#candidates} )); then
        _describe -t values PROGRAM candidates
    elif [[ $directive == 0 ]]; then
        _files
    fi
}
compdef FUNCTION PROGRAM
