package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/hook"
)

// checkMounts adds an error for each path that pods may mount and that lies below a path to which pods may write. A pod
// could replace the lower path by a link to any path of the node, and the OCI runtime follows links.
func (f *valueProblems) checkMounts(o hook.MountsOptions) {
	check := func(key string, list []string) {
		for i, path := range list {
			if at := slices.IndexFunc(o.Writable, func(above string) bool { return isBelow(path, above) }); at >= 0 {
				f.add(fmt.Sprintf("hooks.mounts.%s[%d]", key, i), "%s lies below %s of hooks.mounts.writable: a pod could replace the lower path by a link to another path; list one of the two",
					quoteShort(path), quoteShort(o.Writable[at]))
			}
		}
	}
	check("allowed", o.Allowed)
	check("writable", o.Writable)
}

// isBelow reports whether path lies below the directory above.
func isBelow(path, above string) bool {
	path, above = filepath.Clean(path), filepath.Clean(above)
	return path != above && strings.HasPrefix(path, strings.TrimSuffix(above, "/")+"/")
}
