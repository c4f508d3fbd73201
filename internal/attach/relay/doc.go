// Package relay forwards an HTTP/2 connection that carries gRPC to a backend frame by frame. It holds calls by
// their path: it can change or answer their request, and it reads their answer.
//
// One connection of a caller is one connection to the backend. The relay does not decode other calls. It forwards
// the bytes of every frame unchanged, with settings, windows, pings and the peers' own limits and errors. It
// decodes all header blocks, because HPACK has a state, and forwards them unchanged. So an unknown method, message
// or header needs no support here.
//
// Whatever a peer sends, or fails to send, costs a bounded amount of memory and time; limits.go has the bounds. The
// relay lowers settings that would allow more. It does not limit frames that leave no state here, such as pings,
// empty DATA and frames of unknown types. It forwards them as fast as the other end reads, and that end answers
// them.
//
// The package knows neither the CRI nor any message, and keeps nothing after a call.
//
// References: RFC 9113 (HTTP/2), RFC 7541 (HPACK), gRPC over HTTP/2 as in grpc/doc/PROTOCOL-HTTP2.md.
package relay
