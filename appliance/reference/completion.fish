# Completion of owlbox for fish. Written by `owlbox completion` from the command line; do not edit.
@TABLES@

function __owlbox_complete
    set -l at .
    set -l pending ''
    set -l count 0
    set -l last (commandline -ct)
    for word in (commandline -opc)[2..]
        if test -n "$pending"
            set pending ''
        else if string match -q -- '-*' $word
            contains -- "$word=" (__owlbox_options $at); and set pending $word
        else if contains -- $word (__owlbox_words $at | string replace -r '\t.*' '')
            test $at = .; and set at $word; or set at "$at $word"
            set count 0
        else
            set count (math $count + 1)
        end
    end
    set -l given
    if test -n "$pending"
        set given (__owlbox_values "$at $pending")
    else if string match -q -- '-*' "$last"
        set given (__owlbox_options $at | string replace = '')
    else
        set given (__owlbox_words $at)
        test -n "$given"; or set given (__owlbox_values "$at "(math $count + 1))
        test -n "$given"; or set given (__owlbox_values "$at +")
    end
    switch "$given[1]"
        case @file
            __fish_complete_path "$last"
        case '@*'
            owlbox completion names (string sub -s 2 -- $given[1]) 2>/dev/null
        case '*'
            test -n "$given"; and printf '%s\n' $given
    end
end
complete -c owlbox -f -a '(__owlbox_complete)'
