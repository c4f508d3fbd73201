package doctor

import (
	"io/fs"
	"path/filepath"
	"strings"
)

// checkProxy reports whether the socket of the CRI proxy exists.
func checkProxy(c Check, h host, path string) Check {
	if bad, some := c.socketProblem(h, path, "cri.socket", "start the agent before the kubelet, as a systemd unit and never as a pod"); some {
		return bad
	}
	return c.ok("the agent serves the CRI proxy at %s", path)
}

// socketProblem checks a socket that the agent serves. If there is a problem, it returns the check with the problem,
// and true. The parameter key is the configuration key with the socket's path. The parameter start is the advice for a
// socket that does not exist.
func (c Check) socketProblem(h host, path, key, start string) (bad Check, some bool) {
	info, err := h.stat(path)
	switch {
	case isMissing(err):
		return c.problem(start, "no socket at %s (%s)", path, key), true
	case err != nil:
		return c.unreadable(path, err), true
	case info.Mode().Type() != fs.ModeSocket:
		return c.problem("remove this file, or set another path in "+key, "%s is not a socket", path), true
	}
	return c, false
}

// checkKubeletEndpoint reports whether the kubelet uses the proxy's socket.
func checkKubeletEndpoint(c Check, k kubelet, socket string) Check {
	want := "unix://" + socket
	do := "start the kubelet with --container-runtime-endpoint=" + want
	found, where, err := k.endpoint()
	switch {
	case err != nil:
		return c.unreadable(where, err)
	case found == "":
		return c.unknown(do, "neither kubeadm-flags.env nor config.yaml in %s sets an endpoint", k.root)
	case k.samePath(strings.TrimPrefix(found, "unix://"), socket):
		return c.ok("%s (%s)", found, where)
	}
	return c.problem(do, "%s names %s, not %s", where, found, want)
}

// samePath reports whether two paths are equal, or lead to the same file through symbolic links.
func (h host) samePath(a, b string) bool {
	ra, erra := h.realPath(a)
	rb, errb := h.realPath(b)
	return a == b || erra == nil && errb == nil && ra == rb
}

// flagsFile is the file in which kubeadm writes the kubelet's flags. Flags override the kubelet's configuration.
const flagsFile = "kubeadm-flags.env"

// endpoint returns the kubelet's CRI endpoint, from its flags or else from its configuration, and the file that has it.
func (k kubelet) endpoint() (endpoint, where string, err error) {
	m := k.findPolicy("containerRuntimeEndpoint", "--container-runtime-endpoint", "")
	if m.err != nil && filepath.Base(m.policyFile) != flagsFile {
		return "", m.errFile, m.err
	}
	return m.policy, m.policyFile, nil
}
