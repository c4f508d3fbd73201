// Package relay passes an HTTP/2 connection that carries gRPC on to a backend
// frame by frame, and holds single calls by their path: their request can be
// changed or answered, their answer is watched.
//
// One connection of a caller is one connection to the backend. Calls that are not
// held are not decoded and not made again: the bytes of every frame go on as
// they came, with settings, windows, pings and the peers' own limits and
// errors. Header blocks are read along, because their compression has a state,
// and passed on unchanged. So a method, message or header that is unknown here
// needs nothing of this package.
//
// What a peer sends, or fails to send, costs a bounded amount of memory and
// time; limits.go has the bounds. Settings that would allow more are lowered on
// their way. Frames that leave nothing behind here, such as pings, empty DATA
// and frames of unknown types, are not limited: they go on as fast as the other end
// reads, and it answers them as it likes.
//
// It knows neither CRI nor any message; it keeps nothing after a call.
//
// References: RFC 9113 (HTTP/2), RFC 7541 (HPACK), gRPC over HTTP/2 as in
// grpc/doc/PROTOCOL-HTTP2.md.
package relay
