// Package cri serves the embedded runtime's CRI at a Unix socket like containerd, for attachments and other clients.
// The runtime keeps the state of pods and containers. Images, streaming and other calls that no attachment needs are
// not implemented.
package cri
