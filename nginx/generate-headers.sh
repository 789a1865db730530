#!/usr/bin/env bash
# Makes the headers that nginx's configure writes (objs/ngx_auto_*.h), for the
# sources and the configuration that Debian's nginx-dev has, or for any tree.
#
# Usage: generate-headers.sh SOURCE OUT
set -eu
source=$1
out=$2

[ -e "$out/objs/ngx_auto_config.h" ] && exit 0
rm -rf "$out"
mkdir -p "$out"
for part in auto src conf; do
	if [ -e "$source/$part" ]; then ln -s "$source/$part" "$out/$part"; fi
done
configure=$source/configure
[ -e "$configure" ] || configure=$source/auto/configure

NGX_CONF_FLAGS=(--with-compat --with-threads --with-http_ssl_module --with-http_v2_module)
# shellcheck source=/dev/null
[ -e "$source/conf_flags" ] && . "$source/conf_flags"
cd "$out"
bash "$configure" "${NGX_CONF_FLAGS[@]}" --builddir="$out/objs" > "$out/configure.log" 2>&1 || {
	cat "$out/configure.log"
	rm -rf "$out"
	exit 1
}
