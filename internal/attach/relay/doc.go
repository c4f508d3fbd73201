// Package relay forwards an HTTP/2 connection that carries gRPC to a backend frame by
// frame. It holds calls by their path: it can change or answer their request, and reads
// their answer.
//
// One connection of a caller is one connection to the backend. Other calls are not
// decoded: the bytes of every frame are forwarded as they came, with settings, windows,
// pings and the peers' own limits and errors. Header blocks are decoded too, because
// HPACK has a state, and forwarded unchanged. So an unknown method, message or header
// needs no support here.
//
// What a peer sends, or fails to send, costs a bounded amount of memory and time;
// limits.go has the bounds. Settings that would allow more are lowered. Frames that
// leave no state here, such as pings, empty DATA and frames of unknown types, are not
// limited: they are forwarded as fast as the other end reads, and that end answers
// them.
//
// The package knows neither the CRI nor any message, and keeps nothing after a call.
//
// References: RFC 9113 (HTTP/2), RFC 7541 (HPACK), gRPC over HTTP/2 as in
// grpc/doc/PROTOCOL-HTTP2.md.
package relay
