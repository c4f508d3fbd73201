// Package kubectl tests `kubectl trimtab` against a real API server. Its two nodes are described ones, with the real
// agent on the embedded runtime; what a kubelet would do for pods/exec, a server at the wire does: it runs the agent's
// program on this host.
package kubectl
