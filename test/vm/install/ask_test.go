package install_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ask makes kubectl trimtab ask both nodes, and checks the answers.
func (c *cluster) ask() {
	owner := c.apart()
	c.must(strange)
	said := c.follow("Ask all nodes")
	for _, want := range []string{
		"n1 ", "n2 ", "nri connected", // nodes
		"default/" + owner.name, owner.CPUs, // status, explain
		"CreateContainer default/" + owner.name + "/db", // events
		"default/db/db=", "default/web/web=", // plan
		"no problems on 2 nodes", // doctor
	} {
		if !strings.Contains(said, want) {
			c.t.Errorf("kubectl trimtab does not say %q:\n%s", want, said)
		}
	}
	type row struct {
		Node, Version string
		Ready         bool
	}
	var list struct{ Items []row }
	if err := json.Unmarshal([]byte(c.must("kubectl trimtab nodes -o json")), &list); err != nil || len(list.Items) != len(c.nodes) {
		c.t.Fatalf("nodes are %+v (%v)", list, err)
	}
	for _, r := range list.Items {
		own := c.must("kubectl -n kube-system exec $(kubectl -n kube-system get pods -l app.kubernetes.io/name=trimtab " +
			"--field-selector spec.nodeName=" + r.Node + " -o name) -- trimtab version")
		if !r.Ready || r.Version == "" || !slices.Contains(strings.Fields(own), r.Version) {
			c.t.Errorf("%s is %+v, its agent says %q", r.Node, r, own)
		}
	}
	for _, n := range c.nodes { // the pod runs on one of them
		if s, err := c.sh("kubectl get pod strange -o jsonpath='{.spec.nodeName}'"); err == nil && s == n.name {
			c.event(n, "default", "strange", "RequestMalformed", "qosClass")
		}
	}
	c.must("kubectl delete pod strange")
}

// strange is a pod whose class does not exist.
const strange = `kubectl apply -f - <<'EOF'
apiVersion: v1
kind: Pod
metadata: {name: strange, labels: {koordinator.sh/qosClass: HORSE}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]
EOF
kubectl wait pod strange --for=condition=Ready --timeout=7m`

// look opens the page of a node through the API server.
func (c *cluster) look() {
	said := c.follow("Look at a node")
	if !strings.Contains(said, "<title>") || !strings.Contains(said, "event:") {
		c.t.Errorf("the page of a node is %q", said)
	}
}

// forwarded runs a command that forwards a port, and reads the web page there and the beginning of its
// stream.
func (c *cluster) forwarded(script string) string {
	c.t.Helper()
	// Another run on this machine may have the page's port.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if l.Close() != nil || !strings.Contains(script, " 9464") {
		c.t.Fatalf("it forwards no port 9464:\n%s", script)
	}
	script = strings.Replace(script, " 9464", " "+port+":9464", 1)
	cmd := exec.CommandContext(c.t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = c.root, c.env
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	var page string
	c.await("the page answers", func(ctx context.Context) (err error) {
		page, err = begin(ctx, "http://localhost:"+port+"/page/")
		return err
	})
	feed, err := begin(c.t.Context(), "http://localhost:"+port+"/page/events")
	if err != nil {
		c.t.Fatal(err)
	}
	return page + feed
}

// begin reads the beginning of a document, which may be endless.
func begin(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text := make([]byte, 4096)
	n, err := io.ReadAtLeast(answer.Body, text, 256)
	if answer.StatusCode != http.StatusOK || n == 0 {
		return "", fmt.Errorf("%s: %s (%w)", url, answer.Status, err)
	}
	return string(text[:n]), nil
}
