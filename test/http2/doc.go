// Package http2 has other implementations of HTTP/2 judge the relay of internal/attach/relay:
// h2spec, which breaks every rule of RFC 7540 and 7541 in turn, and nghttp2's clients nghttp
// and h2load. A server of net/http is behind the relay. What grpc-go sees through it is in
// the relay's own tests, which hold every kind of call against the same call without a relay.
//
// h2spec is built by test/tools/build.sh, the others are Debian's package nghttp2-client.
package http2
