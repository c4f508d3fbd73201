package install_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm"
)

// TestCluster follows docs/cluster.md on two nodes: one of four NUMA nodes with two CPUs each, and one of eight CPUs.
func TestCluster(t *testing.T) {
	one, err := vm.ParseTopology("1s x 1n x 8c")
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
		{"ask", (*cluster).ask},
		{"look", (*cluster).look},
		{"numa", (*cluster).numa},
		{"schedule", (*cluster).schedule},
		{"configure", (*cluster).configure},
		{"refused", (*cluster).refused},
		{"layers", (*cluster).layers},
		{"update", (*cluster).update},
		{"away", (*cluster).away},
		{"drain", (*cluster).drain},
		{"remove", (*cluster).remove},
		{"units", (*cluster).units},
	}
	ran := 0
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { ran++; step.do(c.on(t)) }) {
			t.Fatal("the next steps need this one")
		}
	}
	if ran == len(steps) { // -run may select some of them
		c.page.done(t)
	}
}

// install makes the image, copies it to the nodes and installs the chart.
func (c *cluster) install() {
	c.available()
	c.follow("Install")
	c.ready()
	c.condition("Ready")
}

// available loads the images of the chart and of the page's pods on the nodes.
func (c *cluster) available() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.m.Put("/usr/local/bin/ctr", 0o755, read(c, tool(c.t, "ctr")+"/ctr"))
		// The images of the page's pods, by the names under which the cluster's nodes would pull them.
		n.m.Sh("ctr -n k8s.io images tag " + vm.Image("pause") + " registry.k8s.io/pause:3.10")
	}
	c.follow("Make the image available")
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

// ready waits until each node has a ready agent of the DaemonSet's image.
func (c *cluster) ready() {
	c.t.Helper()
	var want string
	c.await("the agents are ready", func(ctx context.Context) error {
		d, err := c.get(ctx, "apps/v1/daemonsets", "kube-system", "trimtab")
		if err != nil {
			return err
		}
		containers, _, _ := nested[[]any](d.Object, "spec", "template", "spec", "containers")
		for _, each := range containers {
			want, _, _ = nested[string](each.(map[string]any), "image")
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
		if image != want {
			c.t.Errorf("an agent runs %s, want %s", image, want)
		}
	}
}

// once runs one of the page's steps if the steps that -run selected left it out.
func (c *cluster) once(heading, script string) {
	c.t.Helper()
	if c.page.blocks[heading] != nil {
		c.must(script)
	}
}

// classes creates pods of two classes, and reads their values from the kernel.
func (c *cluster) classes() {
	said := c.follow("Check")
	if !strings.Contains(said, "dedicated") {
		c.t.Errorf("the page's commands do not show the class of db:\n%s", said)
	}
	c.delegated(c.apart())
}

// pod is the place of a Deployment's pod.
type pod struct {
	running
	name string
	on   *node
}

// pods returns the running pods of a Deployment, each with one container.
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

// apart waits until each pod of db has two CPUs that no pod of web has. It returns db's pod.
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
