#!/bin/sh
# Posts the verdict of `hookwatch diagnose` to a chat that accepts {"text": "..."}, and exits with its code. Arguments are passed on.
#
#   CHAT_URL=https://chat.example.com/hooks/... notify.sh [--context NAME]
set -eu
: "${CHAT_URL:?set it to the address of the incoming webhook of your chat}"

report=$(mktemp)
message=$(mktemp)
trap 'rm -f "$report" "$message"' EXIT

code=0
hookwatch diagnose --output json "$@" >"$report" || code=$?
case $code in
  0) exit 0 ;;       # healthy
  1 | 2 | 3) ;;      # a webhook is failing; could not tell; writes are impaired and no webhook is to blame
  *) exit "$code" ;; # bad usage, or no cluster
esac

jq '{text: ([
  "hookwatch: \(.conclusion). \(.assessment.control_plane.summary // .obstacle // "")",
  (.assessment.hooks // [] | map(select(.health == "Failing" or .health == "Suspect" and .bypass != null))[]
    | "\(.configuration // "?")/\(.webhook): \(.cause) (\(.health)), \(.effect), confidence \(.confidence * 100 | round) %. \(.advice // "")")
] | join("\n"))}' "$report" >"$message"

# The address is a secret: as an argument, other users of this machine could read it.
printf 'url = "%s"\n' "$CHAT_URL" |
  curl --config - --fail --silent --show-error --max-time 10 --output /dev/null \
    --header 'Content-Type: application/json' --data "@$message"
exit "$code"
