// Package kubectl tests `kubectl trimtab` with a real API server. Its two nodes are described ones, with
// the real agent on the embedded runtime. For pods/exec a server replaces the kubelet: it runs the
// agent's program on this host.
package kubectl
