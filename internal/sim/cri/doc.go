// Package cri owns the embedded runtime's second face: the CRI, served at a unix
// socket as containerd serves it, for attachments and clients that speak it. It
// keeps no state of pods and containers; the runtime does. Images, streaming
// and what else a kubelet asks for that no attachment needs are not implemented.
package cri
