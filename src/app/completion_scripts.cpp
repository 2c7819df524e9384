#include "app/completion_scripts.h"

namespace drover {
namespace {

constexpr std::string_view bash_script =
    R"script(# bash completion for drover, printed by `drover completion bash`
_drover() {
    local program=${COMP_WORDS[0]/#\~/$HOME} current=${COMP_WORDS[COMP_CWORD]} line files=
    [[ $current == = ]] && current=
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files) files=yes ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("$program" completion-candidates bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ $files ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$current")
    fi
}
complete -F _drover drover
)script";

constexpr std::string_view zsh_script = R"script(#compdef drover
# zsh completion for drover, printed by `drover completion zsh`
_drover() {
    local program=${words[1]/#\~/$HOME} line files=
    local -a candidates
    for line in ${(f)"$("$program" completion-candidates zsh "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
        case $line in
            :files) files=yes ;;
            *$'\t'*) candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            *) candidates+=("${line//:/\\:}") ;;
        esac
    done
    [[ ${words[CURRENT]} == --*=* ]] && compset -P '*='
    (( $#candidates )) && _describe 'drover' candidates
    [[ -n $files ]] && _files
}
if [[ ${funcstack[1]} == _drover ]]; then
    _drover "$@"
else
    compdef _drover drover
fi
)script";

constexpr std::string_view fish_script =
    R"script(# fish completion for drover, printed by `drover completion fish`
function __drover_candidates
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    for line in ($program completion-candidates fish $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = :files
            set -l flag (string match -r '^--[^=]*=' -- "$current")
            set -l typed (string replace -r '^--[^=]*=' '' -- "$current")
            for path in (__fish_complete_path "$typed")
                echo "$flag$path"
            end
        else
            echo $line
        end
    end
end
complete -c drover -f -a '(__drover_candidates)'
)script";

}  // namespace

std::string_view completion_script(std::string_view shell) {
    if (shell == "bash") return bash_script;
    return shell == "zsh" ? zsh_script : fish_script;
}

}  // namespace drover
