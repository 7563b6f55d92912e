#!/bin/bash -eu
# Build the fuzz targets of the runtime in $OUT, in the repository's root: as OSS-Fuzz calls it or, without its variables,
# with this computer's clang. FUZZ_TARGETS selects some of them.
: "${CC:=clang}" "${CXX:=clang++}" "${OUT:=build/fuzz}" "${LIB_FUZZING_ENGINE:=-fsanitize=fuzzer}"
: "${CFLAGS:=-O1 -g -fsanitize=address,undefined,float-cast-overflow,fuzzer-no-link -fno-sanitize-recover=all}"
: "${CXXFLAGS:=$CFLAGS}"
mkdir -p "$OUT"

objects=$(mktemp -d)
trap 'rm -r "$objects"' EXIT
root=$PWD
(cd "$objects" && ls "$root"/crt/{src,modules,bytecode}/*.c | xargs -P 2 -n 8 $CC $CFLAGS -std=c99 -I"$root/crt/include" -c)
ar rcs "$objects/crt.a" "$objects"/*.o # each target takes what it does not replace itself
for target in ${FUZZ_TARGETS:-server json loader slots delta bytecode}; do
    $CC $CFLAGS -std=c99 -Icrt/include -Icrt/tests -c "fuzz/$target.c" -o "$objects/$target.o"
    $CXX $CXXFLAGS "$objects/$target.o" "$objects/crt.a" $LIB_FUZZING_ENGINE -o "$OUT/$target"
    [[ -z "${FUZZING_ENGINE:-}" ]] || zip -qj "$OUT/${target}_seed_corpus.zip" fuzz/corpus/"$target"/*
done
