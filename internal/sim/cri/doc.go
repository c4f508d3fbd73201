// Package cri serves the CRI of the embedded runtime at a Unix socket, like containerd. The state of pods and
// containers is in the runtime. Images, streaming and other calls that Trimtab does not need are not implemented.
package cri
