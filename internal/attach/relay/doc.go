// Package relay forwards an HTTP/2 connection that carries gRPC to a backend, frame by frame. It holds the calls whose
// path its user selects. It can change the request of a held call, or answer the call itself, and it reads the
// backend's answer.
//
// Each connection of a caller has its own connection to the backend. The relay does not decode calls that it does
// not hold. It forwards the bytes of every frame unchanged, with settings, windows, pings and the peers' own limits
// and errors. It decodes all header blocks, because HPACK has a state, and forwards them unchanged. So the relay
// also forwards methods, messages and headers that it does not know.
//
// The relay lowers settings that allow more than the limits in limits.go, so that a peer can make it use only a bounded
// amount of memory and time. It does not limit frames for which it stores nothing, such as pings. The package does not
// depend on the CRI or its messages.
package relay
