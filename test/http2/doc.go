// Package http2 tests internal/attach/relay with other implementations of HTTP/2: h2spec, which breaks every rule of
// RFC 7540 and 7541 in turn, and nghttp2's clients nghttp and h2load. Behind the relay is a server of net/http or
// nghttp2. The relay's own tests use grpc-go and compare every kind of call with the same call without a relay.
//
// test/tools/build.sh builds h2spec; the others are in Debian's packages nghttp2-client and nghttp2-server.
package http2
