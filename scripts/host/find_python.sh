# Sourced by the scripts beside it, with $root set: leaves in $python the first Python that can run this project.
# $PYTHON if set; else the one that the finished set-up uses; else the system's. With $serve_target gpu the system's at
# once: the image's server and packages are for it.
case $root in
*:*)
  echo "error: $root has ':' in its path, which parts the folders of PYTHONPATH: move it" >&2
  exit 2
  ;;
esac
if [ "$serve_target" != gpu ] && [ -z "$PYTHON" ] && [ -f "$root/.venv/complete" ] && [ -x "$root/.venv/bin/python" ]; then
  python=$root/.venv/bin/python
  return 0
fi
refusal=
for python in ${PYTHON:-python3 python3.12 python3.11 python3.10}; do
  if ! command -v "$python" >/dev/null; then
    reason="there is no such program; Python 3.10, 3.11 or 3.12 is needed"
  elif reason=$("$python" "$root/scripts/host/interpreter.py" "${serve_target:-cpu}" 2>&1); then
    return 0
  fi
  [ -n "$refusal" ] || refusal="$python: $reason"
done
echo "error: $refusal" >&2
exit 2
