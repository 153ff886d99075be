// Package volume keeps the files of one session in an ext4 image of a limited size: it
// creates and mounts the image, keeps blocks allocated for it so that a full disk is ENOSPC
// inside and nothing worse, knows after a power cut or a failed write whether the files can
// be trusted, and recovers those that cannot from the newest snapshot.
package volume
