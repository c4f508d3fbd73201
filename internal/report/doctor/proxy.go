package doctor

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// between reports whether the agent stands between kubelet and runtime.
func (n *node) between() bool { return n.config.Attach == "cri" }

// checkProxy tells whether the proxy's socket is there.
func (n *node) checkProxy() Check {
	c := Check{Name: "cri proxy", Why: "with attach: cri the kubelet reaches the runtime through the agent: without its socket no pod starts, and what runs goes on"}
	path := n.config.CRI.Socket
	info, err := n.host.stat(path)
	switch {
	case missing(err):
		return c.problem("start the agent before the kubelet, as a systemd unit and never as a pod", "no socket at %s (cri.socket)", path)
	case err != nil:
		return c.unseen(path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return c.problem("remove it, or name another cri.socket", "%s is no socket", path)
	}
	return c.ok("serves at %s", path)
}

// checkKubeletEndpoint tells whether the kubelet was given the proxy's socket.
func (n *node) checkKubeletEndpoint() Check {
	c := Check{Name: "kubelet endpoint", Why: "a kubelet that talks to the runtime itself passes the proxy by, and its pods get nothing of what they were promised"}
	want := "unix://" + n.config.CRI.Socket
	do := "start the kubelet with --container-runtime-endpoint=" + want
	found, where, err := n.kubeletEndpoint()
	switch {
	case err != nil:
		return c.unseen(where, err)
	case found == "":
		return c.unknown(do, "neither kubeadm-flags.env nor config.yaml in %s names an endpoint", n.o.KubeletRoot)
	case n.samePath(strings.TrimPrefix(found, "unix://"), n.config.CRI.Socket):
		return c.ok("%s (%s)", found, where)
	}
	return c.problem(do, "%s names %s, not %s", where, found, want)
}

func (n *node) samePath(a, b string) bool {
	ra, erra := n.host.real(a)
	rb, errb := n.host.real(b)
	return a == b || erra == nil && errb == nil && ra == rb
}

var endpointFlag = regexp.MustCompile(`--container-runtime-endpoint[= ]"?([^" ]+)`)

// kubeletEndpoint looks for the endpoint in the kubelet's flags, then in its
// configuration.
func (n *node) kubeletEndpoint() (endpoint, where string, err error) {
	file := filepath.Join(n.o.KubeletRoot, "kubeadm-flags.env")
	data, err := n.host.read(file)
	if err == nil {
		if f := endpointFlag.FindSubmatch(data); f != nil {
			return string(f[1]), file, nil
		}
	} else if !missing(err) {
		return "", file, err
	}
	file = filepath.Join(n.o.KubeletRoot, "config.yaml")
	data, err = n.host.read(file)
	if missing(err) {
		return "", file, nil
	}
	if err != nil {
		return "", file, err
	}
	var k struct {
		Endpoint string `json:"containerRuntimeEndpoint"`
	}
	if err := yaml.Unmarshal(data, &k); err != nil {
		return "", file, fmt.Errorf("read it: %w", err)
	}
	return k.Endpoint, file, nil
}
