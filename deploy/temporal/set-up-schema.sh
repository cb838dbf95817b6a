#!/bin/sh
# Creates Temporal's two databases, or brings their tables up to the release of this image; running it again is harmless.
set -eu

SQL_PASSWORD=$(cat /run/secrets/postgres_password)
export SQL_PASSWORD

sql() {
  database=$1
  shift
  temporal-sql-tool --plugin postgres12 --ep postgresql -p 5432 -u temporal --db "$database" "$@"
}

# An empty database has no version to update from. It is given one only then: a version set again would be a wrong one.
set_up() {
  sql "$1" create
  if ! sql "$1" update-schema -d "$2" >/dev/null 2>&1; then
    sql "$1" setup-schema -v 0.0
    sql "$1" update-schema -d "$2"
  fi
  echo "The database $1 is up to date."
}

set_up temporal /etc/temporal/schema/postgresql/v12/temporal/versioned
set_up temporal_visibility /etc/temporal/schema/postgresql/v12/visibility/versioned
