package real_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/real"
)

// TestMountLink has a pod ask for a directory that it may mount, and for a link below it that leads out of that tree.
// The container starts with the directory, the link is not mounted, and the agent names it.
func TestMountLink(t *testing.T) {
	t.Parallel()
	tree, secret := filepath.Join(t.TempDir(), "tree"), t.TempDir()
	link := filepath.Join(tree, "out")
	if err := errors.Join(os.Mkdir(tree, 0o755), os.Symlink(secret, link)); err != nil {
		t.Fatal(err)
	}
	c := real.Start(t)
	a := startTrimtab(t, c, fmt.Sprintf(`authorization: [{kinds: [mounts], namespaces: [default], decision: allow, mostCPUs: 0}]
hooks: {mounts: {enabled: true, allowed: [%s]}}
`, tree))
	pod := c.RunPod(real.PodSpec{Name: "linked", Annotations: map[string]string{
		"mounts.noderesource.dev": fmt.Sprintf("[{source: %s, destination: /tree}, {source: %s, destination: /out}]", tree, link),
	}})
	id := c.RunContainer(pod, real.ContainerSpec{Name: "main"})
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", c.ContainerPID(id)))
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, fields[4])
		}
	}
	if !slices.Contains(points, "/tree") || slices.Contains(points, "/out") {
		t.Errorf("mounts are at %v", points)
	}
	real.Eventually(t, time.Minute, func() error {
		found, err := a.explained("default", "linked", "main")
		if err != nil || len(found) != 1 {
			return errors.Join(err, fmt.Errorf("%d containers are explained", len(found)))
		}
		for _, p := range found[0].Problems {
			if p.Value == link && strings.Contains(p.Reason, "hooks.mounts.allowed does not list this path") {
				return nil
			}
		}
		return fmt.Errorf("problems %+v", found[0].Problems)
	})
}
