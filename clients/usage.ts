// The calls of the main job, written against the generated types: compiling this shows that they can be made.
import type { paths } from "../build/clients/typescript/schema";

type Json<Operation> = Operation extends { requestBody: { content: { "application/json": infer Body } } } ? Body : never;
type Answer<Operation, Status extends number> = Operation extends {
  responses: { [S in Status]: { content: { "application/json": infer Body } } };
}
  ? Body
  : never;

export const knowledgeBase: Json<paths["/v1/knowledge-bases"]["post"]> = { name: "Docs" };

export const document: Json<paths["/v1/knowledge-bases/{knowledge_base_id}/documents/text"]["post"]> = {
  name: "readme.md",
  text: "# Readme",
};

export const question: Json<paths["/v1/search"]["post"]> = { query: "what is it", limit: 5, mode: "hybrid" };

export function best(answer: Answer<paths["/v1/search"]["post"], 200>): string {
  const hit = answer.hits[0];
  return hit === undefined ? "nothing" : `${hit.document_name} ${hit.location.page ?? ""} ${hit.score.toFixed(3)}`;
}

export function isOver(document: Answer<paths["/v1/documents/{document_id}"]["get"], 200>): boolean {
  return document.terminal && document.error === null;
}
