// Package http2 tests internal/attach/relay with other implementations of HTTP/2. The clients are h2spec and two
// programs of nghttp2: nghttp and h2load. h2spec breaks the rules of RFC 7540 and RFC 7541, one rule in each of its
// tests. The relay forwards to a server of net/http or nghttp2. The tests in the package relay use grpc-go. They
// compare each kind of call with the same call without a relay.
//
// test/tools/build.sh builds h2spec. Debian's packages nghttp2-client and nghttp2-server have the programs of nghttp2.
package http2
