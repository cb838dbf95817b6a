#!/bin/sh
# Creates the namespace that Maestro works in, unless it is there; TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE say where.
set -eu

# The port is open before the server knows its namespaces, so the first answers may be errors.
tries=0
until temporal operator cluster health >/dev/null 2>&1; do
  tries=$((tries + 1))
  if [ "$tries" -ge 60 ]; then
    echo "Temporal at $TEMPORAL_ADDRESS did not become healthy within a minute." >&2
    exit 1
  fi
  sleep 1
done

if temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
  echo "The namespace $TEMPORAL_NAMESPACE is there."
else
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 7d
fi
