package install_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/trimtab/trimtab/test/vm"
)

// wide is a pod that needs more CPUs than any NUMA node of n1 has, but not more than n1 has in total.
const wide = `kubectl apply -f - <<'EOF'
apiVersion: v1
kind: Pod
metadata: {name: wide, labels: {app: wide}}
spec:
  schedulerName: topology
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: registry.k8s.io/pause:3.10
    resources: {limits: {cpu: "3", memory: 64Mi}}
EOF`

// numa lets the agents report their NUMA nodes for a scheduler.
func (c *cluster) numa() {
	c.must("kubectl apply -f " + filepath.Join(c.moduleDir("github.com/k8stopologyawareschedwg/noderesourcetopology-api"), "manifests/crd.yaml"))
	c.follow("Schedule by NUMA node")
	c.ready()
	c.await("the nodes are reported", func(context.Context) error {
		said, err := c.sh("kubectl get noderesourcetopologies.v1alpha2.topology.node.k8s.io -o jsonpath='{range .items[*]}{.metadata.name} {range .zones[*]}{.name}{\",\"}{end}{\"\\n\"}{end}'")
		if err == nil && (!strings.Contains(said, "n1 node-0,node-1,node-2,node-3,") || !strings.Contains(said, "n2 node-0,")) {
			err = fmt.Errorf("reported are %q", said)
		}
		return err
	})
}

// schedule lets the plugin NodeResourceTopologyMatch place a pod by the agents' reports: the pod waits while n1
// is the only node, and runs on n2 when that joins.
func (c *cluster) schedule() {
	vm.SkipUnbuilt(c.t, "build.sh", "topology-scheduler")
	c.plane.StartTopologyScheduler()
	c.must("kubectl cordon n2")
	c.must(wide)
	c.await("the pod fits no NUMA node of n1", func(context.Context) error {
		said, err := c.sh("kubectl get events --field-selector involvedObject.name=wide,reason=FailedScheduling -o jsonpath='{.items[*].message}'")
		if err == nil && !strings.Contains(said, "cannot align") {
			err = errors.New(said)
		}
		return err
	})
	c.must("kubectl uncordon n2")
	c.await("it runs on n2", func(ctx context.Context) error {
		pods, err := c.pods(ctx, "wide")
		if err == nil && (len(pods) != 1 || pods[0].on.name != "n2") {
			err = fmt.Errorf("it is on %+v", pods)
		}
		return err
	})
	c.must("kubectl delete pod wide")
}

// moduleDir returns the source directory of a module that the scheduler uses. It downloads the module if necessary.
func (c *cluster) moduleDir(module string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(c.root, "test/tools/scheduler")
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &answer)); err != nil {
		c.t.Fatalf("download module %s: %v %s", module, err, answer.Error)
	}
	return answer.Dir
}
