package nodeview

import "github.com/trimtab/trimtab/internal/placement"

// ContainerCgroup is the cgroup of a running container.
type ContainerCgroup struct {
	ID, Pod, Container string // Pod is namespace/name
	// Pool is the name of the container's pool, as in the status; "" if the container owns CPUs.
	Pool string
	// Parent is the path of the pod's cgroup, and Path is the path of the container's cgroup, as the runtime reports
	// them.
	Parent, Path string
}

// ContainerCgroups lists the cgroups of running containers.
func ContainerCgroups(source Source) (out []ContainerCgroup) {
	source.View(func(v *View) {
		for _, id := range v.State.Containers() {
			ctr := v.State.Container(id)
			pod := v.State.Pod(ctr.PodID)
			if !ctr.Runs() || pod == nil {
				continue
			}
			g := ContainerCgroup{ID: id, Pod: pod.FullName(), Container: ctr.Name, Parent: pod.Pod.CgroupParent, Path: ctr.CgroupsPath}
			if a := ctr.Assignment; a.Pool != placement.Exclusive {
				g.Pool = poolName(a.Pool, a.PoolID)
			}
			out = append(out, g)
		}
	})
	return out
}
