// Package class has the scheduling classes that several placement policies configure. A scheduling class says how
// the kernel schedules the processes of containers.
package class
