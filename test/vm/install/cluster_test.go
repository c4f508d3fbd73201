package install_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

func TestMain(m *testing.M) { vm.Main(m) }

// patience bounds each wait. An emulated node on a busy machine takes minutes for what a quiet one does in ten seconds.
const patience = 8 * time.Minute

// cluster is a control plane on this machine with guests as nodes.
type cluster struct {
	t     *testing.T
	plane *controlplane.Plane
	flags []string // of the API server
	api   dynamic.Interface
	nodes map[string]*node // by the address of their kubelets
	env   []string         // of the administrator's commands
	root  string           // of the checkout
	page  *page            // the page that is followed
}

// form starts a control plane. Its API server reaches kubelets through a proxy, as if the nodes were in
// another network; this process is the proxy.
func form(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, nodes: map[string]*node{}, root: root(t)}
	dir, err := os.MkdirTemp("", "ttc") // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	egress := filepath.Join(dir, "egress.yaml")
	socket := filepath.Join(dir, "egress.sock")
	text := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: cluster\n" +
		"  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: " + socket + "}}}\n"
	if err := os.WriteFile(egress, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.proxy(socket)
	c.flags = []string{"--egress-selector-config-file=" + egress, "--kubelet-preferred-address-types=InternalIP"}
	c.plane = controlplane.Start(t, c.flags...)
	c.plane.StartControllers()
	c.plane.StartScheduler()
	c.api = c.plane.Dynamic(controlplane.Admin)
	c.env = append(os.Environ(), "KUBECONFIG="+c.plane.Kubeconfig("admin", controlplane.Admin+"-token"), "KUBECACHEDIR="+dir,
		"HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir,
		"PATH="+strings.Join([]string{filepath.Join(c.root, "bin"), tool(t, "helm"), tool(t, "kubectl"), os.Getenv("PATH")}, ":"))
	return c
}

// proxy answers CONNECT at a socket with connections into the guests.
func (c *cluster) proxy(socket string) {
	c.t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		c.t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(c.connect)}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	c.t.Cleanup(func() { _ = server.Close(); <-done })
}

func (c *cluster) connect(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.Host)
	n := c.nodes[host]
	if r.Method != http.MethodConnect || n == nil {
		http.Error(w, "no such node: "+r.Host, http.StatusBadGateway)
		return
	}
	there, err := n.m.Dial(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	here, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	go func(from *bufio.Reader) {
		_, _ = io.Copy(there, from)
		there.Close()
	}(buffered.Reader)
	_, _ = io.Copy(here, there)
}

// sh runs a script like the administrator, at the root of the checkout, and returns its output.
func (c *cluster) sh(script string) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = c.root, c.env
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w\n%s\n%s%s", err, script, out.Bytes(), said.Bytes())
	}
	return out.String(), err
}

// must is sh for commands that must succeed.
func (c *cluster) must(script string) string {
	c.t.Helper()
	out, err := c.sh(script)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// await repeats a check until there is no error.
func (c *cluster) await(what string, look func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	begun := time.Now()
	for {
		err := look(ctx)
		if err == nil {
			c.t.Logf("%s: after %.1f s", what, time.Since(begun).Seconds())
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("%s: not after %s: %v", what, patience, err)
		case <-time.After(500 * time.Millisecond): // the pause between two checks
		}
	}
}

// on returns the cluster with failures reported to a subtest.
func (c *cluster) on(t *testing.T) *cluster {
	t.Helper()
	other := *c
	other.t, other.nodes = t, map[string]*node{}
	for address, n := range c.nodes {
		with := *n
		with.c, with.m = &other, n.m.For(t)
		other.nodes[address] = &with
	}
	return &other
}

// get reads an object; group, version and resource as in apps/v1/daemonsets, or v1/pods.
func (c *cluster) get(ctx context.Context, resource, namespace, name string) (*unstructured.Unstructured, error) {
	r := c.api.Resource(gvr(resource))
	if namespace == "" {
		return r.Get(ctx, name, metav1.GetOptions{})
	}
	return r.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

func gvr(text string) schema.GroupVersionResource {
	f := strings.Split(text, "/")
	if len(f) == 2 {
		return schema.GroupVersionResource{Version: f[0], Resource: f[1]}
	}
	return schema.GroupVersionResource{Group: f[0], Version: f[1], Resource: f[2]}
}

// kubeconfig returns a kubeconfig with which a guest reaches the API server.
func (c *cluster) kubeconfig(user string) []byte {
	c.t.Helper()
	ca, err := os.ReadFile(c.plane.CA)
	if err != nil {
		c.t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "x",
"clusters": [{"name": "c", "cluster": {"server": "https://%s:%d", "certificate-authority-data": %q}}],
"users": [{"name": "u", "user": {"token": %q}}],
"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}`,
		controlplane.HostAddress, c.plane.Port, base64.StdEncoding.EncodeToString(ca), user+"-token")
}

// tool returns the folder of a program that test/tools builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root(t), "test/tools/build.sh"), name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var errNotYet = errors.New("not yet")
