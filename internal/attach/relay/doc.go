// Package relay forwards gRPC calls over HTTP/2 from a caller to a backend, frame by frame. HandlingFunc selects, by
// the path of the gRPC method, the calls that the relay holds. The request of a held call waits until a hook has
// decided the call. The hook can change the request, or answer the call itself. The relay also reads the backend's
// answer.
//
// Each connection of a caller has its own connection to the backend. The relay forwards the frames of all other calls
// unchanged, and does not decode their messages. It also forwards settings, window updates, pings and errors. It
// decodes all header blocks, because a block can be decoded only after all earlier blocks (HPACK), and forwards them
// unchanged. So the relay also forwards methods, messages and headers that it does not know.
//
// The relay lowers settings that allow more than the limits in limits.go. So the caller and the backend can make the
// relay use only a bounded amount of memory and time. The relay does not limit frames for which it stores nothing, such
// as pings. The package does not depend on the CRI or on the messages of the CRI.
package relay
