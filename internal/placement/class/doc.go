// Package class has classes that several placement policies configure. So far these are scheduling classes,
// which say how the kernel schedules the processes of containers.
package class
