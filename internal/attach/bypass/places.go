package bypass

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// places is what is watched of a cgroup tree: the directories above pods, and
// pods. One goroutine uses it.
type places struct {
	tree  *cgroup.Tree
	watch cgroup.Watcher
	// tops are where a kubelet's cgroups may be, whether they are there or not.
	tops []string
	// learned are directories of pods that the runtime lists and that are not below
	// the tops.
	learned map[string]bool
	above   map[string]bool // watched for a top to appear
	groups  map[string]bool // watched: kubepods and its classes
	pods    map[string]bool // watched
	// blind is why a directory could not be watched; "" where all are.
	blind string
	// trusts: a pod's directory that is watched need not be listed to know what
	// is in it.
	trusts bool
}

// topsBelow returns where the kubelet puts its cgroups below its --cgroup-root,
// by either driver (kubelet 1.36, pkg/kubelet/cm: a systemd slice lives where
// its name says, and dashes in names become underscores).
func topsBelow(root string) ([]string, error) {
	root = strings.Trim(path.Clean("/"+root), "/")
	var parts []string
	if root != "" {
		for part := range strings.SplitSeq(root, "/") {
			parts = append(parts, strings.ReplaceAll(strings.TrimSuffix(part, ".slice"), "-", "_"))
		}
	}
	slice, err := cgroup.PodPath(strings.Join(append(parts, "kubepods.slice"), "-"))
	if err != nil {
		return nil, fmt.Errorf("bypass.cgroupRoot %q: %w", root, err)
	}
	return slices.Compact([]string{path.Join(root, "kubepods"), slice, path.Join(root, "kubepods.slice")}), nil
}

func newPlaces(tree *cgroup.Tree, w cgroup.Watcher, root string) (*places, error) {
	tops, err := topsBelow(root)
	if err != nil {
		return nil, err
	}
	return &places{
		tree: tree, watch: w, tops: tops,
		learned: map[string]bool{}, above: map[string]bool{}, groups: map[string]bool{}, pods: map[string]bool{},
	}, nil
}

// fileOf is the path of a cgroup in the hierarchy that shows pods and
// containers: that of the cpuset, which runtimes make first.
func fileOf(tree *cgroup.Tree, dir string) string {
	if tree.Version == cgroup.V1 {
		return path.Join("cpuset", dir)
	}
	return dir
}

// dir is the inverse of fileOf, in any hierarchy: the cgroup a path is about.
func (p *places) dir(file string) (string, bool) {
	if p.tree.Version == cgroup.V2 {
		return file, true
	}
	_, dir, ok := strings.Cut(file, "/")
	return dir, ok
}

// scan watches what is there and returns the directories of containers, by id.
// It is called at the start, and whenever notices may have been lost.
func (p *places) scan() map[string]string {
	p.blind = ""
	for _, kind := range []map[string]bool{p.pods, p.groups, p.above} {
		maps.DeleteFunc(kind, func(dir string, _ bool) bool { return !p.tree.Has(dir) }) // its notice may have been lost
	}
	found := map[string]string{}
	for _, top := range p.tops {
		if !p.tree.Has(top) {
			p.await(top)
			continue
		}
		p.group(top, found, 0)
	}
	for dir := range p.learned {
		if !p.tree.Has(dir) {
			delete(p.learned, dir)
			continue
		}
		p.pod(dir, found)
	}
	return found
}

// rescan is scan where no notice was lost: it skips directories that are watched.
func (p *places) rescan() map[string]string {
	p.trusts = true
	defer func() { p.trusts = false }()
	return p.scan()
}

// await watches the nearest directory above a top that is not there yet.
func (p *places) await(top string) {
	for dir := path.Dir(top); ; dir = path.Dir(dir) {
		if dir == "." || p.tree.Has(dir) {
			p.add(dir, p.above)
			return
		}
	}
}

// group takes in a directory above pods.
func (p *places) group(dir string, found map[string]string, depth int) {
	if !p.add(dir, p.groups) {
		return
	}
	names, _ := p.tree.Children(dir, "cpuset") // gone meanwhile
	for _, name := range names {
		p.child(path.Join(dir, name), found, depth)
	}
}

func (p *places) child(dir string, found map[string]string, depth int) {
	switch cgroup.ParseName(dir).Kind {
	case cgroup.QoSDir:
		if depth == 0 {
			p.group(dir, found, depth+1)
		}
	case cgroup.PodDir:
		p.pod(dir, found)
	}
}

func (p *places) pod(dir string, found map[string]string) {
	if p.trusts && p.pods[dir] || !p.add(dir, p.pods) {
		return
	}
	names, _ := p.tree.Children(dir, "cpuset")
	for _, name := range names {
		note(path.Join(dir, name), found)
	}
}

// note notes the directory of a container.
func note(dir string, found map[string]string) {
	if n := cgroup.ParseName(dir); n.Kind == cgroup.ContainerDir {
		found[n.ID] = dir
	}
}

// learn watches a pod's directory that the runtime has reported.
func (p *places) learn(dir string) map[string]string {
	found := map[string]string{}
	if p.pods[dir] {
		return found
	}
	if !slices.ContainsFunc(p.tops, func(top string) bool { return strings.HasPrefix(dir, top+"/") }) {
		p.learned[dir] = true
	}
	p.pod(dir, found)
	return found
}

// made takes in a directory that appeared and returns the containers below it.
func (p *places) made(file string) map[string]string {
	dir, ok := p.dir(file)
	if !ok {
		return nil
	}
	above := path.Dir(dir)
	found := map[string]string{}
	switch {
	case !p.real(dir):
		// A file, a link, or gone already.
	case p.groups[above]:
		p.child(dir, found, strings.Count(dir, "/")-p.level(dir)-1)
	case p.pods[above]:
		note(dir, found)
	case p.above[above]:
		return p.scan()
	}
	return found
}

// level is how deep the top is that dir is below.
func (p *places) level(dir string) int {
	for _, top := range p.tops {
		if strings.HasPrefix(dir, top+"/") {
			return strings.Count(top, "/")
		}
	}
	return strings.Count(dir, "/")
}

// real reports whether a directory is one itself: listing the one above shows
// no links.
func (p *places) real(dir string) bool {
	names, err := p.tree.Children(path.Dir(dir), "cpuset")
	return err == nil && slices.Contains(names, path.Base(dir))
}

// gone forgets a directory. It returns it, as a container's may have gone.
func (p *places) gone(file string) (dir string, ok bool) {
	if dir, ok = p.dir(file); ok {
		delete(p.pods, dir)
		delete(p.groups, dir)
		delete(p.above, dir)
	}
	return dir, ok
}

// add watches a directory, and reports whether it is there.
func (p *places) add(dir string, kind map[string]bool) bool {
	if kind[dir] {
		return true
	}
	err := p.watch.Add(fileOf(p.tree, dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		// Read nevertheless: what is there now is known, what comes is found by
		// the next scan of everything.
		p.blind = fmt.Sprintf("%s cannot be watched: %v", dir, err)
		return true
	}
	kind[dir] = true
	return true
}
