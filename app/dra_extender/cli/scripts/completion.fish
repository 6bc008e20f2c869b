# Completion of PROGRAM for fish: PROGRAM completion fish | source
function FUNCTION
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l lines (PROGRAM __complete $words 2>/dev/null)
    set -l directive 0
    set -l found 0
    for line in $lines
        if string match -qr '^:[0-9]+$' -- $line
            set directive (string sub -s 2 -- $line)
        else
            set found 1
            echo $line
        end
    end
    if test $directive = 0 -a $found = 0
        __fish_complete_path (commandline -ct)
    end
end
complete -c PROGRAM -f -a '(FUNCTION)'
