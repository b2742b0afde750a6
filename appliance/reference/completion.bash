# Completion of owlbox for bash. Written by `owlbox completion` from the command line; do not edit.
@TABLES@

_owlbox() {
    local cur=${COMP_WORDS[COMP_CWORD]} line=${COMP_LINE:0:COMP_POINT} at=. pending= count=0 word given=
    local -a typed
    read -ra typed <<<"$line"
    [[ $line == *[[:space:]] ]] && typed+=("")  # bash itself cuts words at colons, which addresses hold
    local last=${typed[${#typed[@]}-1]}
    for word in "${typed[@]:1:${#typed[@]}-2}"; do
        if [[ -n $pending ]]; then
            pending=
        elif [[ $word == -* ]]; then
            [[ " ${_owlbox_options[$at]-} " == *" $word= "* ]] && pending=$word
        elif [[ " ${_owlbox_words[$at]-} " == *" $word "* ]]; then
            [[ $at == . ]] && at=$word || at="$at $word"
            count=0
        else
            count=$((count + 1))
        fi
    done
    if [[ -n $pending ]]; then
        given=${_owlbox_values["$at $pending"]-}
    elif [[ $last == -* ]]; then
        given=${_owlbox_options[$at]-}
        given=${given//=/}
    elif [[ -n ${_owlbox_words[$at]-} ]]; then
        given=${_owlbox_words[$at]}
    else
        given=${_owlbox_values["$at $((count + 1))"]-${_owlbox_values["$at +"]-}}
    fi
    if [[ $given == @file ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$cur"))
        return
    fi
    COMPREPLY=()
    if [[ $given == @* ]]; then  # no compgen -W: it would run what stands in a name
        while IFS=$'\t' read -r word _; do
            [[ $word == "$last"* ]] && printf -v word %q "$word" && COMPREPLY+=("$word")
        done < <(owlbox completion names "${given#@}" 2>/dev/null)
    else
        for word in $given; do
            [[ $word == "$last"* ]] && COMPREPLY+=("$word")
        done
    fi
    if [[ $last == *:* && $COMP_WORDBREAKS == *:* ]]; then  # what stands before the colon is there already
        local before=${last%"${last##*:}"}
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    fi
}
complete -F _owlbox owlbox
