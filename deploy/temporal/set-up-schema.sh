#!/bin/sh
# Creates Temporal's two databases, or brings their tables up to the release of this image; running it again is harmless.
set -eu

SQL_PASSWORD=$(cat /run/secrets/postgres_password)
export SQL_PASSWORD

sql() {
  temporal-sql-tool --plugin postgres12 --ep postgresql -p 5432 -u temporal "$@"
}

sql --db temporal create
sql --db temporal setup-schema -v 0.0
sql --db temporal update-schema -d /etc/temporal/schema/postgresql/v12/temporal/versioned

sql --db temporal_visibility create
sql --db temporal_visibility setup-schema -v 0.0
sql --db temporal_visibility update-schema -d /etc/temporal/schema/postgresql/v12/visibility/versioned
