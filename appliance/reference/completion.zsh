#compdef owlbox
# Completion of owlbox for zsh. Written by `owlbox completion` from the command line; do not edit.
@TABLES@

_owlbox() {
    local at=. pending= count=0 word given
    local -a rows
    for word in "${(@)words[2,CURRENT-1]}"; do
        if [[ -n $pending ]]; then
            pending=
        elif [[ $word == -* ]]; then
            [[ " ${_owlbox_options[$at]} " == *" $word= "* ]] && pending=$word
        elif [[ -n ${(M)${(f)_owlbox_words[$at]}:#${(b)word}:*} ]]; then
            [[ $at == . ]] && at=$word || at="$at $word"
            count=0
        else
            (( count += 1 ))
        fi
    done
    if [[ -n $pending ]]; then
        given=${_owlbox_values[$at $pending]}
    elif [[ $words[CURRENT] == -* ]]; then
        given=${_owlbox_options[$at]//=/}
    elif [[ -n ${_owlbox_words[$at]} ]]; then
        rows=("${(@f)_owlbox_words[$at]}")
        _describe command rows
        return
    else
        given=${_owlbox_values[$at $((count + 1))]:-${_owlbox_values[$at +]}}
    fi
    if [[ $given == @file ]]; then
        _files
    elif [[ $given == @* ]]; then
        rows=("${(@f)$(owlbox completion names ${given#@} 2>/dev/null)}")
        compadd -- ${${rows%%$'\t'*}:#}
    else
        compadd -- ${=given}
    fi
}

if [[ $funcstack[1] == _owlbox ]]; then
    _owlbox "$@"
else
    compdef _owlbox owlbox
fi
