// Package cri serves the CRI of the embedded runtime at a Unix socket, like containerd. The state of pods and
// containers is in the runtime. All calls that Trimtab does not need, such as those for images and streaming, fail
// with Unimplemented.
package cri
