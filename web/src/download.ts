/** Hands a file to the reader, as if a link to it had been followed. */

export function download(file: Blob, name: string): void {
  const url = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser may read it a little later.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
