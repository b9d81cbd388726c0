#!/bin/sh
# Opens an issue for each cause to which something happened in night NIGHT, or tells it in the one that there is; with
# `all`, for each cause that is open. gh has to be logged in; GH_REPO=OWNER/NAME says where, else the clone around does.
set -eu
cd "$(dirname "$0")"
gh label create driftnet --description "Found by driftnet" > /dev/null 2>&1 || true  # most often there is one
known=$(gh issue list --label driftnet --state all --limit 5000 --json number,state,title --jq '.[] | "\(.number) \(.state) \(.title)"')

# tell DIGITS open|fixed TITLE
tell() {
  issue=$(printf '%s\n' "$known" | grep -F "[driftnet $1]" | head -n 1)
  number=${issue%% *}
  if [ -z "$number" ]; then
    [ "$2" = fixed ] || gh issue create --label driftnet --title "$3" --body-file "$1.md"
    return 0
  fi
  if [ -f "$1-update.md" ]; then
    said=$(gh issue view "$number" --json body,comments --jq '.body, .comments[].body')  # if that fails, all ends here
    case $said in
      *"night NIGHT"*) ;;
      *) gh issue comment "$number" --body-file "$1-update.md" ;;
    esac
  fi
  case "$2 $issue" in
    "fixed $number OPEN "*) gh issue close "$number" ;;
    "open $number CLOSED "*) gh issue reopen "$number" ;;
  esac
}

