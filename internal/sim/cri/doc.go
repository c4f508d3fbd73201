// Package cri serves the CRI of the embedded runtime at a Unix socket, like containerd. The package itself has no state
// of pods and containers; package sim has it. Calls that Trimtab does not need, such as the calls for images and
// streaming, fail with Unimplemented.
package cri
