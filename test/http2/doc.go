// Package http2 tests internal/attach/relay with other implementations of HTTP/2. The clients are h2spec, which breaks
// one rule of RFC 7540 and 7541 after the other, and nghttp2's nghttp and h2load. The relay forwards to a server of
// net/http or nghttp2. The tests in the package relay use grpc-go, and compare each kind of call with the same call
// without a relay.
//
// test/tools/build.sh builds h2spec. Debian's packages nghttp2-client and nghttp2-server have the programs of nghttp2.
package http2
