# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Completion of the command weft for bash. The words come from the command's own help, so they are those of the installed version.
_weft_commands() { "$1" --help 2>/dev/null | awk '/^DESCRIPTION/ { on = 1; next } /^[A-Z]/ { on = 0 } on && /^  [a-z]+  / { print $1 }'; echo help; }
_weft_options() { "$1" "$2" --help 2>/dev/null | grep -oE '(^|[[:space:],|[])--?[a-z][a-z-]*' | grep -oE -- '--?[a-z][a-z-]*' | sort -u; }
# The words that a command such as `weft nic` begins with: "weft nic list|info ..." in its synopsis.
_weft_verbs() { "$1" --help 2>/dev/null | awk -v command="$2" '$1 == "weft" && $2 == command && $3 ~ /^[a-z]+(\|[a-z]+)+$/ { gsub(/\|/, " ", $3); print $3 }'; }
_weft_providers() { "$1" info -l 2>/dev/null | awk '{ print $1 }'; }

_weft() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD - 1]}" weft="${COMP_WORDS[0]}" command="${COMP_WORDS[1]:-}"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$(_weft_commands "$weft") --version --help" -- "$word")
    return
  fi
  # Behind "weft run --" and "weft trace --" stands another command.
  if [[ $command == @(run|trace) && $word != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -c -- "$word")
    return
  fi
  case "$before" in
    -p | --provider) mapfile -t COMPREPLY < <(compgen -W "$(_weft_providers "$weft")" -- "$word"); return ;;
    help) mapfile -t COMPREPLY < <(compgen -W "$(_weft_commands "$weft")" -- "$word"); return ;;
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_weft_options "$weft" "$command")" -- "$word")
  elif ((COMP_CWORD == 2)) && [[ -n "$(_weft_verbs "$weft" "$command")" ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_weft_verbs "$weft" "$command")" -- "$word")
  elif [[ $command == check ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_weft_providers "$weft")" -- "$word"; compgen -f -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -F _weft weft
