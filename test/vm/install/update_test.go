package install_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// update installs another version on all nodes while pods start and end. No running pod moves.
func (c *cluster) update() {
	before := c.versions()
	// Another version of the same code: Go records the tag of the build in the program, and git is not
	// called.
	c.must("make image VCS=false MORE_TAGS=second ARCHES=" + runtime.GOARCH + " IMAGE=registry.example/trimtab TAG=v2")
	c.imports()
	owner, shared := c.apart(), c.shared()
	stop, unload := c.watch(append(shared, owner)...), c.load()
	c.follow("Update")
	c.ready()
	if came := unload(); came < 2 {
		c.t.Errorf("%d pods came and went during the update, want more", came)
	} else {
		c.t.Logf("%d pods came and went during the update", came)
	}
	c.t.Log(stop())
	c.unmoved(owner, c.apart())
	for name, after := range c.versions() {
		if after == before[name] {
			c.t.Errorf("%s runs the image %s before and after the update", name, after)
		}
	}
}

// versions returns the agents' images, by node.
func (c *cluster) versions() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	said := c.must(`kubectl -n kube-system get pods -l app.kubernetes.io/name=trimtab -o jsonpath='{range .items[*]}{.spec.nodeName} {.status.containerStatuses[0].imageID}{"\n"}{end}'`)
	for line := range strings.Lines(said) {
		node, image, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[node] = image
	}
	for _, n := range c.nodes {
		if all[n.name] == "" {
			c.t.Errorf("the agent of %s has no image in %q", n.name, said)
		}
	}
	return all
}

// shared returns the pods that share CPUs.
func (c *cluster) shared() []pod {
	c.t.Helper()
	all, err := c.pods(c.t.Context(), "web")
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

// load starts and ends pods until the returned function stops it and returns their number. None of them owns CPUs.
func (c *cluster) load() (stop func() int) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var all sync.WaitGroup
	came := 0
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := c.sh(fmt.Sprintf(passing, i, i)); err != nil {
				c.t.Errorf("pods that come during the update: %v", err)
				return
			}
			came += 2
		}
	})
	end := sync.OnceFunc(func() { cancel(); all.Wait() })
	c.t.Cleanup(end)
	return func() int { end(); return came }
}

// passing has the two pods of load: one shares CPUs, the other has no request.
const passing = `kubectl apply -f - <<'EOF'
apiVersion: v1
kind: Pod
metadata: {name: plain-%d, labels: {app: load}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: v1
kind: Pod
metadata: {name: share-%d, labels: {app: load, koordinator.sh/qosClass: LS}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "registry.k8s.io/pause:3.10", resources: {requests: {cpu: 50m, memory: 16Mi}}}]
EOF
kubectl wait pod -l app=load --for=condition=Ready --timeout=7m
kubectl delete pod -l app=load --timeout=7m`

// imports are the commands that an administrator runs on each node according to the page.
func (c *cluster) imports() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.m.For(c.t).Put("/root/"+imageFile, 0o644, read(c, c.root+"/dist/"+imageFile))
		n.m.For(c.t).Sh("cd /root && ctr -n k8s.io images import trimtab-image.tar && rm trimtab-image.tar")
	}
}

// watch reads cgroups of pods repeatedly, until the returned function is called, which returns the number
// of reads.
func (c *cluster) watch(pods ...pod) (stop func() string) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var all sync.WaitGroup
	looks := 0
	all.Go(func() {
		for ; ctx.Err() == nil; looks++ {
			for _, want := range pods {
				is, err := want.on.container(ctx, "default", want.name)
				if ctx.Err() != nil {
					return
				}
				if err != nil || is != want.running {
					c.t.Errorf("%s was %+v, and is %+v (%v)", want.name, want.running, is, err)
					return
				}
			}
		}
	})
	end := sync.OnceFunc(func() { cancel(); all.Wait() })
	c.t.Cleanup(end)
	return func() string {
		end()
		if looks == 0 {
			c.t.Error("nobody looked")
		}
		return fmt.Sprintf("%d looks at each of %d pods, each with the same kernel files", looks, len(pods))
	}
}
