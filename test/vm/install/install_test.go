package install_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
)

// away is how long the API server is stopped.
const away = 45 * time.Second

// TestCluster follows docs/cluster.md on two nodes: one of four NUMA nodes with two CPUs each, and one of eight CPUs.
func TestCluster(t *testing.T) {
	one, err := vm.Shaped("1s x 1n x 8c")
	if err != nil {
		t.Fatal(err)
	}
	c := form(t)
	c.join(1, vm.FourNodes)
	c.join(2, one)
	c.page = readPage(t, "cluster.md")
	steps := []struct {
		name string
		do   func(*cluster)
	}{
		{"install", (*cluster).install},
		{"classes", (*cluster).classes},
		{"numa", (*cluster).numa},
		{"configure", (*cluster).configure},
		{"refused", (*cluster).refused},
		{"update", (*cluster).update},
		{"away", (*cluster).away},
		{"drain", (*cluster).drain},
		{"remove", (*cluster).remove},
	}
	ran := 0
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { ran++; step.do(c.on(t)) }) {
			t.Fatal("the next steps need this one")
		}
	}
	if ran == len(steps) { // -run may choose some
		c.page.done(t)
	}
}

// install makes the image, brings it to the nodes and installs the chart.
func (c *cluster) install() {
	for _, n := range c.nodes {
		n.m.Put("/usr/local/bin/ctr", 0o755, read(c, tool(c.t, "ctr")+"/ctr"))
		// What the page's pods run, by the name that the cluster's nodes would pull it by.
		n.m.Sh("ctr -n k8s.io images tag " + vm.Image("pause") + " registry.k8s.io/pause:3.10")
	}
	c.follow("Make the image available")
	c.follow("Install")
	c.ready("v1")
	c.condition("Ready")
}

// condition waits until the condition TrimtabReady of each node has a reason.
func (c *cluster) condition(reason string) {
	c.t.Helper()
	for _, n := range c.nodes {
		c.await(n.name+" has the condition "+reason, func(context.Context) error {
			is, err := c.sh(`kubectl get node ` + n.name + ` -o jsonpath='{.status.conditions[?(@.type=="TrimtabReady")].reason}'`)
			if err == nil && is != reason {
				err = fmt.Errorf("its reason is %q", is)
			}
			return err
		})
	}
}

// ready waits until each node has a ready agent of an image.
func (c *cluster) ready(tag string) {
	c.t.Helper()
	c.await("the agents are ready", func(ctx context.Context) error {
		d, err := c.get(ctx, "apps/v1/daemonsets", "kube-system", "trimtab")
		if err != nil {
			return err
		}
		status, _, _ := nested[map[string]any](d.Object, "status")
		for _, key := range []string{"numberReady", "updatedNumberScheduled"} {
			if ready, _, _ := nested[int64](status, key); ready != int64(len(c.nodes)) {
				return fmt.Errorf("%w: %v", errNotYet, status)
			}
		}
		return nil
	})
	images := c.must(`kubectl -n kube-system get pods -l app.kubernetes.io/name=trimtab -o jsonpath='{range .items[*]}{.spec.containers[0].image} {end}'`)
	for _, image := range strings.Fields(images) {
		if image != "registry.example/trimtab:"+tag {
			c.t.Errorf("an agent runs %s", image)
		}
	}
}

// classes has pods of two classes, and reads of the kernel what they have.
func (c *cluster) classes() {
	said := c.follow("Check")
	if !strings.Contains(said, "dedicated") {
		c.t.Errorf("the page's commands do not show the class of db:\n%s", said)
	}
	c.apart()
}

// pod is where a Deployment's pod is.
type pod struct {
	running
	name string
	on   *node
}

// pods are those of a Deployment that run, each with one container.
func (c *cluster) pods(ctx context.Context, app string) ([]pod, error) {
	out, err := c.sh(`kubectl get pods -l app=` + app + ` -o json`)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name, DeletionTimestamp string }
			Spec     struct{ NodeName string }
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	var all []pod
	for _, item := range list.Items {
		if item.Metadata.DeletionTimestamp != "" {
			continue
		}
		p := pod{name: item.Metadata.Name, on: c.named(item.Spec.NodeName)}
		if p.on == nil {
			return nil, fmt.Errorf("%s is on no node", p.name)
		}
		if p.running, err = p.on.container(ctx, "default", p.name); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no pod of %s", app)
	}
	return all, nil
}

func (c *cluster) named(name string) *node {
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// apart waits until each pod of db has two CPUs, and no pod of web has one of them. It returns db's pod.
func (c *cluster) apart() pod {
	c.t.Helper()
	var owner pod
	c.await("the pods have their CPUs", func(ctx context.Context) error {
		db, err := c.pods(ctx, "db")
		if err != nil {
			return err
		}
		web, err := c.pods(ctx, "web")
		if err != nil {
			return err
		}
		owner = db[0]
		own, err := topology.ParseList(owner.CPUs)
		if err != nil || len(own) != 2 || len(db) != 1 {
			return fmt.Errorf("db has %+v (%w)", db, err)
		}
		for _, p := range web {
			if p.on.name == owner.on.name && overlap(p.CPUs, owner.CPUs) {
				return fmt.Errorf("web has %s, db %s", p.CPUs, owner.CPUs)
			}
		}
		return nil
	})
	return owner
}

func overlap(a, b string) bool {
	x, _ := topology.ParseList(a)
	y, _ := topology.ParseList(b)
	return slices.ContainsFunc(x, func(id int) bool { return slices.Contains(y, id) })
}

// configure changes the configuration, which reaches running pods.
func (c *cluster) configure() {
	before := c.apart()
	c.follow("Configure")
	c.await("shared pods have left the reserved CPUs", func(ctx context.Context) error {
		web, err := c.pods(ctx, "web")
		for _, p := range web {
			if overlap(p.CPUs, "0-1") {
				return fmt.Errorf("web has %s", p.CPUs)
			}
		}
		return err
	})
	c.unmoved(before, c.apart())
}

// unmoved compares what the kernel has of the owner of CPUs.
func (c *cluster) unmoved(before, after pod) {
	c.t.Helper()
	if before.name != after.name || before.running != after.running {
		c.t.Errorf("db was %s %+v, and is %s %+v", before.name, before.running, after.name, after.running)
	}
}

// refused has the ConfigMap hold what no agent can use: each goes on with what it had.
func (c *cluster) refused() {
	before := c.apart()
	good := c.must(`kubectl -n kube-system get configmap trimtab -o json`)
	var object struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(good), &object); err != nil {
		c.t.Fatal(err)
	}
	c.configMap(object.Data["config.yaml"] + "\npools: {reserved: all of them}\n")
	for _, n := range c.nodes {
		c.await(n.name+" refuses the configuration", func(context.Context) error {
			s, err := agent.New(n.m).Status()
			if err == nil && s.ConfigError == "" {
				err = errNotYet
			}
			return err
		})
	}
	c.condition("ConfigurationRefused")
	c.unmoved(before, c.apart())
	c.configMap(object.Data["config.yaml"])
	for _, n := range c.nodes {
		c.await(n.name+" has the good one again", func(context.Context) error {
			s, err := agent.New(n.m).Status()
			if err == nil && s.ConfigError != "" {
				err = errors.New(s.ConfigError)
			}
			return err
		})
	}
	c.condition("Ready")
}

func (c *cluster) configMap(text string) {
	c.t.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"config.yaml": text}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(`kubectl -n kube-system patch configmap trimtab --type merge --patch '` + string(patch) + `'`)
}

// update gives all nodes another image while pods come and go.
func (c *cluster) update() {
	before := c.apart()
	c.must("make image IMAGE=registry.example/trimtab TAG=v2")
	c.imports()
	stop := c.watch(before)
	c.must("kubectl scale deployment/web --replicas=4")
	c.follow("Update")
	c.ready("v2")
	c.must("kubectl rollout status deployment/web --timeout=10m && kubectl scale deployment/web --replicas=1")
	c.t.Log(stop())
	c.unmoved(before, c.apart())
}

// imports is what the page has an administrator do on each node.
func (c *cluster) imports() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.m.For(c.t).Put("/root/"+imageFile, 0o644, read(c, c.root+"/dist/"+imageFile))
		n.m.For(c.t).Sh("cd /root && ctr -n k8s.io images import trimtab-image.tar && rm trimtab-image.tar")
	}
}

// watch reads a pod's cgroup again and again, until the function returned says how often.
func (c *cluster) watch(want pod) (stop func() string) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var all sync.WaitGroup
	looks := 0
	all.Go(func() {
		for ctx.Err() == nil {
			is, err := want.on.container(ctx, "default", want.name)
			if ctx.Err() != nil {
				return
			}
			if err != nil || is != want.running {
				c.t.Errorf("db was %+v, and is %+v (%v)", want.running, is, err)
				return
			}
			looks++
		}
	})
	end := sync.OnceFunc(func() { cancel(); all.Wait() })
	c.t.Cleanup(end)
	return func() string {
		end()
		if looks == 0 {
			c.t.Error("nobody looked")
		}
		return fmt.Sprintf("%d looks at db, each with the same CPUs", looks)
	}
}

// away stops the API server, and ends an agent meanwhile. What runs keeps what it has, and the agent comes back.
func (c *cluster) away() {
	before := c.apart()
	c.plane.StopServer()
	stopped := time.Now()
	stop := c.watch(before)
	n := before.on
	agents := agent.New(n.m)
	was := n.m.Sh("pidof trimtab")
	n.m.Sh("kill -9 " + was)
	c.await("the agent is back", func(context.Context) error {
		s, err := agents.Status()
		if err == nil && (len(s.Attachments) != 1 || s.Attachments[0].State != "connected") {
			err = fmt.Errorf("%+v", s.Attachments)
		}
		return err
	})
	if is := n.m.Sh("pidof trimtab"); is == was {
		c.t.Errorf("the agent is still process %s", is)
	}
	c.await("the API server has been away long enough", func(context.Context) error {
		if time.Since(stopped) < away {
			return errNotYet
		}
		return nil
	})
	c.t.Log(stop())
	c.plane.StartServer(c.flags...)
	c.t.Logf("the API server was away for %.0f s", time.Since(stopped).Seconds())
	c.unmoved(before, c.apart())
	c.must("kubectl scale deployment/web --replicas=3 && kubectl rollout status deployment/web --timeout=10m && kubectl scale deployment/web --replicas=1")
	c.ready("v2")
}

// drain has the owner's node drained: its pods move, and the agent stays and gives nobody CPUs.
func (c *cluster) drain() {
	before := c.apart()
	c.must("kubectl drain " + before.on.name + " --ignore-daemonsets --timeout=8m")
	after := c.apart()
	if after.on.name == before.on.name {
		c.t.Errorf("db is still on %s", after.on.name)
	}
	c.await("no CPU is owned on the drained node", func(context.Context) error {
		s, err := agent.New(before.on.m).Status()
		if err == nil && len(s.CPUs.Grants) > 0 {
			err = fmt.Errorf("%+v", s.CPUs.Grants)
		}
		return err
	})
	c.must("kubectl uncordon " + before.on.name)
	c.ready("v2")
}

// remove gives back what was changed, and looks for what stays: in the API server by label, and on the nodes, but for what
// the kubelet keeps of each pod for a while after its end.
func (c *cluster) remove() {
	c.follow("Remove")
	c.condition("")
	if left, err := c.sh("kubectl get noderesourcetopologies -o name"); err != nil || strings.TrimSpace(left) != "" {
		c.t.Errorf("of NodeResourceTopology is left: %q (%v)", left, err)
	}
	c.await("no object is left", func(context.Context) error {
		left, err := c.sh(`kubectl api-resources --verbs=list -o name | grep -v '^events' | paste -sd, |
xargs -I{} kubectl get {} --all-namespaces --ignore-not-found --no-headers -l app.kubernetes.io/name=trimtab -o name`)
		if err == nil && strings.TrimSpace(left) != "" {
			err = errors.New(left)
		}
		return err
	})
	for _, n := range c.nodes {
		if left := n.m.Sh("find / -xdev -name '*trimtab*' -not -path '/payload*' -not -path '/var/lib/containerd/*' -not -path '/var/log/*' -not -path '/var/lib/kubelet/pods/*' 2>/dev/null || true"); left != "" {
			c.t.Errorf("%s has left:\n%s", n.name, left)
		}
	}
	c.await("shared pods have all CPUs again", func(ctx context.Context) error {
		web, err := c.pods(ctx, "web")
		for _, p := range web {
			if all := p.on.m.Sh("cat /sys/fs/cgroup/cpuset.cpus.effective"); p.CPUs != all {
				return fmt.Errorf("web has %s of %s", p.CPUs, all)
			}
		}
		return err
	})
}
